-- Gives all permits of a token back but one, and grants them to the waiters. The hold keeps its fence and its lease.
-- The first write is PEXPIRE, ZREM or DEL, which a server at maxmemory allows.
--
-- uses now_ms read_permits
-- KEYS  lock, ends of the leases, waiters, ends of their heartbeats, fence counter, index
-- ARGV  token
-- returns  0 not held with this token, 1 held, 2 held, and waiters were notified
local lock, ends, waiters = KEYS[1], KEYS[2], KEYS[3]
local heartbeats, counter, index = KEYS[4], KEYS[5], KEYS[6]
local token = ARGV[1]
local time = redis.call('TIME')
local now = now_ms(time)
local state, denied = read_permits(lock, ends, nil, token, now)
if not state then return denied or 0 end
-- uses limit_of next_fence add_hold forget_waiter grant_permits save_permits
if state.own then
  local permits, rest = string.match(state.own, '^(%d+)(.*)$')
  redis.call('PEXPIRE', ends, state.last - now)
  state.fields = {token, '1' .. rest}
  state.used, state.dropped = state.used - permits + 1, true
end
local notified = grant_permits(lock, ends, waiters, heartbeats, counter, state, time)
if state.dropped or notified > 0 then save_permits(lock, ends, index, state, now) end
return not state.own and 0 or notified > 0 and 2 or 1
