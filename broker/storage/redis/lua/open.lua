-- SPDX-License-Identifier: Apache-2.0
-- Makes the caller the log's owner, and the log where there is none. KEYS: all of a partition's. ARGV: leader epoch, owner, what the name of the owner before
-- must begin with. It answers with the meta.
local m = redis.call('HMGET', KEYS[2], 'epoch', 'owner', 'end', 'epochs')
if not m[1] then
  if ARGV[3] ~= '' then return {'GONE'} end
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'DAMAGED'} end
  redis.call('UNLINK', KEYS[3], KEYS[4], KEYS[5], KEYS[6])
  redis.call('XADD', KEYS[1], '0-1', 'b', '')
  redis.call('XDEL', KEYS[1], '0-1')
  redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'owner', ARGV[2], 'start', '0', 'end', '0', 'total', '0', 'gone', '0', 'largest', '0', 'epochs', ARGV[1] .. ':0')
  return {'OK', redis.call('HGETALL', KEYS[2])}
end
if tonumber(ARGV[1]) < tonumber(m[1]) or string.sub(m[2], 1, #ARGV[3]) ~= ARGV[3] then return {'FENCED', m[1]} end
redis.call('UNLINK', KEYS[5], KEYS[6])
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'owner', ARGV[2])
if m[1] ~= ARGV[1] then
  local epochs = (m[4] or '') .. ' ' .. ARGV[1] .. ':' .. m[3]
  if #epochs > 4096 then epochs = string.sub(epochs, string.find(epochs, ' ', #epochs - 4096, true) + 1) end
  redis.call('HSET', KEYS[2], 'epochs', epochs)
end
return {'OK', redis.call('HGETALL', KEYS[2])}
