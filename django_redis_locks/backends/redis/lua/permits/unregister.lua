-- Removes the address of a waiter, and gives the permits back that were granted to the token of that address. Or, with the
-- token and fence of a grant that no waiter expects: gives its permits back unless a request has claimed it since.
-- Then grants permits to the next waiters. The first write is ZREM or DEL, which a server at maxmemory allows.
--
-- uses now_ms read_permits forget_waiter
-- KEYS  lock, ends of the leases, waiters, ends of their heartbeats, fence counter, index
-- ARGV  address ('': it isn't registered any more), and of an unexpected grant: token, fence
-- returns  0, or 1 if permits were given back, or 2 if other waiters were notified
local lock, ends, waiters = KEYS[1], KEYS[2], KEYS[3]
local heartbeats, counter, index = KEYS[4], KEYS[5], KEYS[6]
local address, token, fence = ARGV[1], ARGV[2] or '', ARGV[3]
local unexpected = token ~= ''
if not unexpected then token = string.match(address, '^%S+ %x+ (%S+)') or '' end
if address ~= '' then forget_waiter(waiters, heartbeats, address) end
local time = redis.call('TIME')
local now = now_ms(time)
local state, denied = read_permits(lock, ends, nil, token, now)
if not state then return denied or 0 end
-- uses drop_hold limit_of next_fence add_hold grant_permits save_permits
local freed = state.own and (not unexpected or string.match(state.own, '^%d+ (%d+)%*') == fence)
if freed then drop_hold(lock, ends, state, token, state.own) end
local notified = grant_permits(lock, ends, waiters, heartbeats, counter, state, time)
if state.dropped or notified > 0 then save_permits(lock, ends, index, state, now) end
return notified > 0 and 2 or freed and 1 or 0
