-- SPDX-License-Identifier: Apache-2.0
-- Notes what compaction has done that has found nothing to remove. KEYS: log, meta. ARGV: leader epoch, owner, what it has done.
redis.call('HSET', KEYS[2], 'compacted', ARGV[3])
return {'OK'}
