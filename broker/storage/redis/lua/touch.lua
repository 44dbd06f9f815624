-- SPDX-License-Identifier: Apache-2.0
-- Changes nothing, by a write, so that the connection can wait until replicas have all that was written before. The log must have all of it: another server may have
-- become the primary since, without the log's last batches. KEYS: log, meta. ARGV: leader epoch, owner, the end that the log must have.
if m[3] ~= ARGV[3] then return {'END', m[3]} end
redis.call('HSET', KEYS[2], 'owner', ARGV[2])
return {'OK'}
