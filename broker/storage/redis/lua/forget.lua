-- SPDX-License-Identifier: Apache-2.0
-- Forgets producers. KEYS: log, meta, producers. ARGV: leader epoch, owner, producer ids.
for i = 3, #ARGV do redis.call('HDEL', KEYS[3], ARGV[i]) end
return {'OK'}
