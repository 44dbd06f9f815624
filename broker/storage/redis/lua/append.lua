-- SPDX-License-Identifier: Apache-2.0
-- Begins an append. KEYS: log, meta, times, producers, the log's name while it is appended to. ARGV: leader epoch, owner, the end that the log must have, its
-- new end, the new total, the largest batch; how many index entries and producers follow; and these, in pairs.
if m[3] ~= ARGV[3] then return {'END', m[3]} end
redis.call('RENAME', KEYS[1], KEYS[5])
redis.call('HSET', KEYS[2], 'end', ARGV[4], 'total', ARGV[5], 'largest', ARGV[6])
local at = 9
for _ = 1, ARGV[7] do
  redis.call('ZADD', KEYS[3], ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, ARGV[8] do
  redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1])
  at = at + 2
end
return {'OK'}
