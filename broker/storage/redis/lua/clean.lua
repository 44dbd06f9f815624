-- SPDX-License-Identifier: Apache-2.0
-- Goes on with the log that compaction makes. KEYS: log, meta, its times, the new log, the new times. ARGV: leader epoch, owner, and triples: C and the first
-- and last id of what stays as it is; P, an id and a batch; T, a score and an entry of the index; D twice nothing, to remove what was made.
for i = 3, #ARGV, 3 do
  local kind, a, b = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if kind == 'P' then
    redis.call('XADD', KEYS[4], a, 'b', b)
  elseif kind == 'C' then
    for _, e in ipairs(redis.call('XRANGE', KEYS[1], a, b)) do redis.call('XADD', KEYS[4], e[1], 'b', e[2][2]) end
  elseif kind == 'T' then
    redis.call('ZADD', KEYS[5], a, b)
  else
    redis.call('UNLINK', KEYS[4], KEYS[5])
  end
end
return {'OK'}
