-- SPDX-License-Identifier: Apache-2.0
-- Reads batches up to a number of bytes, at least one, where it cannot be known how many batches that are. KEYS: log. ARGV: the first id, bytes, batches.
local out, size, from = {}, 0, ARGV[1]
while true do
  local entries = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 8)
  for _, e in ipairs(entries) do
    size = size + #e[2][2]
    if #out > 0 and size > tonumber(ARGV[2]) then return out end
    out[#out + 1] = e
    if #out >= tonumber(ARGV[3]) then return out end
  end
  if #entries < 8 then return out end
  from = '(' .. entries[8][1]
end
