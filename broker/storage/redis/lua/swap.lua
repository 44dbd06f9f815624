-- SPDX-License-Identifier: Apache-2.0
-- Adds to the log that compaction has made what was appended since, and puts it in the place of the old one. KEYS: as clean.lua's. ARGV: leader epoch, owner,
-- the id of the last batch that compaction has gone over or this script has added, the offset up to which compaction went as the entries of the index have it, the new
-- count of bytes gone, what compaction has done. Where more was appended than it is to add at once, it answers with the id of the last batch that it has added.
local size, last = 0, ARGV[3]
local entries = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 256)
for _, e in ipairs(entries) do
  redis.call('XADD', KEYS[4], e[1], 'b', e[2][2])
  size, last = size + #e[2][2], e[1]
  if size > 8388608 then return {'MORE', last} end
end
if #entries == 256 then return {'MORE', last} end
if redis.call('EXISTS', KEYS[4]) == 0 then return {'LOST'} end
local at = -1
while true do
  local t = redis.call('ZRANGE', KEYS[3], at, at, 'WITHSCORES')
  if #t == 0 or string.sub(t[1], 1, 20) <= ARGV[4] then break end
  redis.call('ZADD', KEYS[5], t[2], t[1])
  at = at - 1
end
redis.call('UNLINK', KEYS[1], KEYS[3])
redis.call('RENAME', KEYS[4], KEYS[1])
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('RENAME', KEYS[5], KEYS[3]) end
redis.call('HSET', KEYS[2], 'gone', ARGV[5], 'compacted', ARGV[6])
return {'OK', redis.call('XLEN', KEYS[1])}
