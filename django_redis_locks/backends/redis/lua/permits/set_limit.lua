-- Sets the limit of permits for all clients, and grants permits to the waiters. Holds beyond a smaller limit stay. The limit is
-- kept for $SET_LIMIT_RETENTION ms after its last use.
--
-- uses now_ms read_permits
-- KEYS  lock, ends of the leases, waiters, ends of their heartbeats, fence counter, index
-- ARGV  kind, limit
-- returns  1 set, {-1, what} the key holds a value that is not a lock of this kind
local lock, ends, waiters = KEYS[1], KEYS[2], KEYS[3]
local heartbeats, counter, index = KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now = now_ms(time)
local state, denied = read_permits(lock, ends, ARGV[1], '', now)
if not state then
  if denied then return denied end
  -- uses read_value describe_value
  return describe_value(lock)
end
state.kind, state.set = ARGV[1], tonumber(ARGV[2])
-- uses limit_of next_fence add_hold forget_waiter grant_permits save_permits
state.extended = true
grant_permits(lock, ends, waiters, heartbeats, counter, state, time)
save_permits(lock, ends, index, state, now)
return 1
