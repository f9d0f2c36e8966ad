-- Drops the holds of permits with these fences, or all of them, regardless of their holders, and grants the permits to the
-- waiters. Notifies all processes, so that the holders check their holds at once.
-- The first write is ZREM or DEL, which a server at maxmemory allows.
--
-- uses now_ms read_permits
-- KEYS  lock, ends of the leases, waiters, ends of their heartbeats, fence counter, index
-- ARGV  channel of all processes, fences (none: all)
-- returns  0 nothing to free, 1 freed, 2 freed, and waiters were notified
local lock, ends, waiters = KEYS[1], KEYS[2], KEYS[3]
local heartbeats, counter, index = KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now = now_ms(time)
local state, denied = read_permits(lock, ends, nil, '', now)
if not state then return denied or 0 end
-- uses drop_hold limit_of next_fence add_hold forget_waiter grant_permits save_permits
local wanted, freed = {}, false
for n = 2, #ARGV do wanted[ARGV[n]] = true end
for _, token in ipairs(redis.call('ZRANGE', ends, 0, -1)) do
  local hold = redis.call('HMGET', lock, token)[1] or '0 0'
  if not ARGV[2] or wanted[string.match(hold, '^%d+ (%d+)')] then
    drop_hold(lock, ends, state, token, hold)
    freed = true
  end
end
if freed then redis.pcall('$PUBLISH', ARGV[1], 'look ' .. lock) end
local notified = grant_permits(lock, ends, waiters, heartbeats, counter, state, time)
if state.dropped or notified > 0 then save_permits(lock, ends, index, state, now) end
return not freed and 0 or notified > 0 and 2 or 1
