-- Acquires the lock if it is free and no other waiter is before the caller in line, or if it is held with the same token.
-- Otherwise returns the holder. A free lock with waiters, because a lease has ended, is granted to the first of them that is
-- alive, which may be the caller. A repeated request never shortens the lease.
-- The place in line is the time at which the caller's first request arrived. The reply for a busy lock returns it; the same
-- step registers the caller's address there, if it has one.
-- At maxmemory the first write for a free lock fails, before anything is changed, unless a waiter is granted the lock.
--
-- KEYS  lock, fence counter, waiters, index
-- ARGV  token, lease in ms, holder
--       and of a caller that may wait: address, place (0: now, -1: remove the address), ms to keep the registration
-- returns  fence: granted
--          {0, ms left, fence, since in ms, holder, place (0: not registered)}  busy
--          {-1, what}  the key holds a value that is not a lock of this kind
local lock, waiters, index, lease = KEYS[1], KEYS[3], KEYS[4], ARGV[2]
local address, place = ARGV[4], tonumber(ARGV[5] or 0)
local details = ARGV[3]
if details ~= '' then details = ' ' .. details end
-- uses now_ms next_fence
local granted
local value = redis.pcall('GET', lock)
if not value then
  -- uses grant_next grant_after_lease
  value = grant_after_lease(lock, waiters, KEYS[2], index, address or '', place)
end

if value then
  -- uses read_value
  local token, fence, since, holder, left = read_value(lock, value, 'lock')
  if not token then return fence end
  if token ~= ARGV[1] then
    -- uses place_in_line register_waiter
    if place == -1 then
      place = 0
      redis.call('ZREM', waiters, address)
    else
      if place == 0 then place = place_in_line(waiters, address) end
      if address then place = register_waiter(waiters, address, place, ARGV[6]) end
    end
    return {0, left, fence, since, holder, place}
  end
  -- uses claim
  claim(lock, value, left, lease, '', details, index)
  granted = fence
else
  local time = redis.call('TIME')
  local fence, since = next_fence(KEYS[2], nil, time, 0)
  if not fence then return since end
  redis.call('SET', lock, '1 lock ' .. ARGV[1] .. ' ' .. fence .. since .. details, 'PX', lease)
  if index then
    redis.call('ZADD', index, now_ms(time) + lease, lock)
    if time[2] % 100 == 0 then
      -- uses purge_index
      purge_index(index, now_ms(time))
    end
  end
  granted = fence
end
if address then redis.call('ZREM', waiters, address) end
return tonumber(granted)
