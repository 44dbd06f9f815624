-- SPDX-License-Identifier: Apache-2.0
-- Removes a log. KEYS: all of a partition's.
return redis.call('UNLINK', unpack(KEYS))
