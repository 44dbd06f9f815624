-- SPDX-License-Identifier: Apache-2.0
-- Removes the batches whose next offset is at most the new start. KEYS: log, meta, times. ARGV: leader epoch, owner, new start, new count of bytes gone, the
-- start as the entries of the index have it. It answers with how many batches are left.
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%s-1', ARGV[3]))
redis.call('HSET', KEYS[2], 'start', ARGV[3], 'gone', ARGV[4])
while true do
  local n, entries = 0, redis.call('ZRANGE', KEYS[3], 0, 99)
  while n < #entries and string.sub(entries[n + 1], 1, 20) <= ARGV[5] do n = n + 1 end
  if n > 0 then redis.call('ZREMRANGEBYRANK', KEYS[3], 0, n - 1) end
  if n < 100 then break end
end
return {'OK', redis.call('XLEN', KEYS[1])}
