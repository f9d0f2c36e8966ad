-- Gives the permits of a token back, and grants them to the waiters. The first write is ZREM or DEL, which a server at maxmemory
-- allows.
--
-- uses now_ms read_permits
-- KEYS  lock, ends of the leases, waiters, ends of their heartbeats, fence counter, index
-- ARGV  token
-- returns  0 not held with this token, 1 freed, 2 freed, and waiters were notified
local lock, ends, waiters = KEYS[1], KEYS[2], KEYS[3]
local heartbeats, counter, index = KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now = now_ms(time)
local state, denied = read_permits(lock, ends, nil, ARGV[1], now)
if not state then return denied or 0 end
-- uses drop_hold save_permits
if state.own then drop_hold(lock, ends, state, ARGV[1], state.own) end
local notified = 0
if redis.call('ZCARD', waiters) > 0 then
  -- uses limit_of next_fence add_hold forget_waiter grant_permits
  notified = grant_permits(lock, ends, waiters, heartbeats, counter, state, time)
end
if state.dropped or notified > 0 then save_permits(lock, ends, index, state, now) end
return not state.own and 0 or notified > 0 and 2 or 1
