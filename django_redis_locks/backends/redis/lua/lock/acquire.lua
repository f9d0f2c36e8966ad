-- Acquires the lock if it is free, held with the same token, or held with the token that was handed over. Otherwise returns
-- the holder. A repeated request gets the same fence as the first one, and never shortens the lease.
-- At maxmemory the first write for a free lock fails, before anything is changed. A lock that was handed over can still be
-- acquired: its first write is PEXPIRE.
-- A client that may wait also reserves the $RESERVED_FENCES fences after its own for local hand-overs; a + after the stored
-- fence marks that. A * marks a lock that was granted to a waiter, and that no request has claimed. The first request with its
-- token claims it: the lock gets the lease and the holder of the request, and a + instead of the *.
-- If the lock is busy, the same step registers the client's address as a waiter.
-- One acquire in a hundred removes old entries from the index.
-- A client that asks several servers at once names a fence that the new one exceeds, so that all of them give the same one.
--
-- uses next_fence now_ms
-- KEYS  lock, fence counter, index or for a client that may wait waiters, index
-- ARGV  token, lease in ms, holder
--       and for a client that may wait: token that was handed over (of a client that asks several servers this is the
--       last argument: a fence that the new one exceeds), address, arrival (0: now, -1: remove the address), ms to keep
--       the registration
-- returns  fence: granted, it was free; to a client that may wait {1, fence, 1 if it was free, 0, 1 if others wait}
--          {0, ms left, fence, since in ms, holder, arrival, 1 if others wait}  busy
--          {-1, what}  the key holds a value that is not a lock of this kind
local lock, lease = KEYS[1], ARGV[2]
local handed, least = ARGV[4], nil
if not ARGV[5] then handed, least = nil, ARGV[4] end
local index = KEYS[3]
if handed then index = KEYS[4] end

local details = ARGV[3]
if details ~= '' then details = ' ' .. details end
local reply, last
local value = redis.pcall('GET', lock)
if value then
  -- uses read_value
  local token, fence, since, holder, left = read_value(lock, value, 'lock')
  if not token then return fence end
  if token == ARGV[1] then
    -- uses claim
    claim(lock, value, left, lease, '+', details, index)
    reply = {1, fence, 0}
  elseif token ~= handed then
    reply = {0, left, fence, since, holder}
  else
    redis.call('PEXPIRE', lock, lease)
    last = fence
  end
end

if not reply then
  local time = redis.call('TIME')
  local fence, since = next_fence(KEYS[2], last or least, time, handed and $RESERVED_FENCES or 0)
  if not fence then return since end
  local reserved = handed and '+' or ''
  redis.call('SET', lock, '1 lock ' .. ARGV[1] .. ' ' .. fence .. reserved .. since .. details, 'PX', lease)
  if index then
    redis.call('ZADD', index, now_ms(time) + lease, lock)
    if time[2] % 100 == 0 then
      -- uses purge_index
      purge_index(index, now_ms(time))
    end
  end
  if not handed then return tonumber(fence) end
  reply = {1, fence, last and 0 or 1}
end

local arrival, others = 0, 0
if handed then
  -- uses register_waiter
  local address, waiters = ARGV[5], KEYS[3]
  if address ~= '' then
    if reply[1] == 0 and ARGV[6] ~= '-1' then
      arrival = register_waiter(waiters, address, ARGV[6], ARGV[7])
    else
      redis.call('ZREM', waiters, address)
    end
  end
  if redis.call('ZCARD', waiters) > (arrival ~= 0 and 1 or 0) then others = 1 end
end
reply[#reply + 1] = arrival
reply[#reply + 1] = others
return reply
