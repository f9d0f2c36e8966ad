-- Extends the leases of several locks to some ms from now. A lease is never shortened, so a late copy of an earlier request
-- changes nothing. The first write is PEXPIRE, which a server at maxmemory allows.
--
-- uses is_owned now_ms
-- KEYS  locks, index
-- ARGV  lease in ms, token of each lock
-- returns  for each lock: 1 renewed, 0 not held with this token
local lease, last = ARGV[1], #ARGV - 2
local lease_ms, renewed, index_entries, ends = tonumber(lease), {}, {}, nil
for n = 0, last do
  local lock = KEYS[1 + n]
  local owned, denied = is_owned(redis.pcall('GET', lock), ARGV[2 + n])
  if denied then return denied end
  renewed[1 + n] = owned and 1 or 0
  if owned then
    if redis.call('PTTL', lock) < lease_ms then
      redis.call('PEXPIRE', lock, lease)
      ends = ends or now_ms(redis.call('TIME')) + lease
      index_entries[#index_entries + 1] = ends
      index_entries[#index_entries + 1] = lock
    end
  end
end
local index = KEYS[2 + last]
if index and index_entries[1] then redis.call('ZADD', index, 'XX', unpack(index_entries)) end
return renewed
