-- Acquires permits if they are free and nothing waits before the request, or if the token holds some already. Otherwise returns
-- one of the holders. A repeated request gets the same fence as the first one, and never shortens the lease.
-- At maxmemory the first write fails, before anything is changed, unless the request is repeated or other leases have ended.
-- The place in line is the time at which the caller's first request arrived. The reply to a busy request returns it; the same
-- step registers the caller's address there, if it has one. The caller must repeat the request in time, because a waiter that
-- is silent is dropped; its next request registers it again at its place.
-- As in lock/acquire, a * marks a hold that was granted to a waiter, and that no request has claimed.
-- One acquire in a hundred removes old entries from the index.
--
-- uses now_ms read_permits limit_of
-- KEYS  lock, ends of the leases, waiters, ends of their heartbeats, fence counter, index
-- ARGV  token, lease in ms, holder, kind, limit, permits
--       and of a caller that may wait: address, place (0: now, -1: remove the address), ms for which it may be silent
-- returns  fence: granted; {1, fence, other limit} if holders have another limit
--          {0, ms left, fence, since in ms, permits, holder, last fence, other limit (0: none), place (0: not registered)}  busy; with
--          the holder with the first end of a lease
--          {-1, what}  the key holds a value that is not a lock of this kind
--          {-2, limit}  the limit that was set allows fewer permits
local lock, ends, waiters = KEYS[1], KEYS[2], KEYS[3]
local heartbeats, counter, index = KEYS[4], KEYS[5], KEYS[6]
local token, lease, holder, kind, limit, permits = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local address, place, may_be_silent = ARGV[7] or '', tonumber(ARGV[8] or 0), ARGV[9]
local time = redis.call('TIME')
local now = now_ms(time)
local state, denied = read_permits(lock, ends, kind, token, now)
if not state then
  if denied then return denied end
  -- uses read_value describe_value
  return describe_value(lock)
end
local waits = address ~= ''
local other_limit = state.used > 0 and not state.set and state.limit ~= limit and state.limit or 0

local fence
if state.own then
  local unclaimed
  local held, rest
  held, fence, unclaimed, rest = string.match(state.own, '^(%d+) (%d+)(%*?)(@?%d*)')
  redis.call('PEXPIRE', ends, math.max(lease, state.last - now))
  redis.call('ZADD', ends, 'XX', 'GT', now + lease, token)
  state.last, state.extended = math.max(state.last, now + lease), true
  if unclaimed ~= '' then
    if holder ~= '' then holder = ' ' .. holder end
    state.fields = {token, held .. ' ' .. fence .. rest .. holder}
  end
end

-- uses next_fence add_hold save_permits place_in_line
local too_many = state.set and permits > state.set
local keeps_place = not (state.own or too_many or place == -1)
local registered, notified, first, grant_others = 0, 0, true, nil
if waits or redis.call('ZCARD', waiters) > 0 then
  -- uses forget_waiter grant_permits
  if waits and keeps_place then
    -- uses register_waiter
    if place == 0 then place = place_in_line(waiters, address) end
    registered = register_waiter(waiters, address, place, may_be_silent)
    if registered ~= 0 then
      redis.call('ZADD', heartbeats, now + may_be_silent, address)
      redis.call('PEXPIRE', heartbeats, may_be_silent)
    end
  elseif waits and place ~= -1 then
    forget_waiter(waiters, heartbeats, address)
  end
  notified, first = grant_permits(lock, ends, waiters, heartbeats, counter, state, time, address, tonumber(place))
  first = first and (notified == 0 or not redis.call('ZSCORE', ends, token))
  if waits then
    grant_others = function()
      forget_waiter(waiters, heartbeats, address)
      notified = notified + grant_permits(lock, ends, waiters, heartbeats, counter, state, time)
    end
  end
end

if not (fence or too_many) and first and permits <= limit_of(state, limit) - state.used then
  local since
  fence, since = next_fence(counter, nil, time, 0)
  if not fence then
    if state.dropped or notified > 0 then save_permits(lock, ends, index, state, now) end
    return since
  end
  add_hold(ends, state, kind, limit, permits, token, fence, '', since, holder, now + lease)
  if index and time[2] % 100 == 0 then
    -- uses purge_index
    purge_index(index, now)
  end
end
if waits and (fence or not keeps_place) then grant_others() end
if fence or notified > 0 or state.dropped then save_permits(lock, ends, index, state, now) end
if fence then return other_limit == 0 and tonumber(fence) or {1, fence, other_limit} end
if too_many then return {-2, state.set} end

if not waits and place == 0 then registered = place_in_line(waiters) end
local soonest = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
local left, of_hold, since, taken, description = 1000, '0', '0', '1', ''
if soonest[1] then
  left = soonest[2] - now
  local hold = redis.call('HMGET', lock, soonest[1])[1] or '1 0'
  taken, of_hold, since, description = string.match(hold, '^(%d+) (%d+)%*?@?(%d*) ?(.*)$')
  if since == '' then since = string.sub(of_hold, 1, -4) end
end
return {0, left, of_hold, since, taken, description, redis.call('GET', counter) or '0', other_limit, registered}
