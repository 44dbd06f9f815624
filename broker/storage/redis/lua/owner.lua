-- SPDX-License-Identifier: Apache-2.0
-- Begins the scripts that change a log, and ends those of whoever is not its owner. KEYS[1] is the log and KEYS[2] its meta; ARGV[1] is the leader epoch and ARGV[2] the owner.
local m = redis.call('HMGET', KEYS[2], 'epoch', 'owner', 'end')
if not m[1] then return {'GONE'} end
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return {'FENCED', m[1]} end
