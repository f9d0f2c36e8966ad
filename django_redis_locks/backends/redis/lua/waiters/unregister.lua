-- Removes a queue of a process from the waiters. Frees the lock if it was granted to the queue, or if a process that doesn't
-- expect the grant of this token and fence has received it, and no request has claimed it since. If the lock is free, grants
-- it to the next waiter, because the removed queue may have received a wake-up or a grant that it didn't use. The first write
-- is ZREM or DEL, which a server at maxmemory allows.
--
-- uses is_owned now_ms next_fence grant_next wake
-- KEYS  lock or record, waiters, and if it can be granted: fence counter, index
-- ARGV  address ('': it isn't registered any more), and of an unexpected grant: token, fence
-- returns  0, or 1 if the lock was freed, or 2 if another process was granted the lock or notified
local key, waiters, address = KEYS[1], KEYS[2], ARGV[1]
if address ~= '' then redis.call('ZREM', waiters, address) end
local value = redis.pcall('GET', key)
local owned, denied = is_owned(value, ARGV[2] or string.match(address, '^%S+ %x+ (%S+)') or '')
if denied then return denied end
if owned and ARGV[3] and string.match(value, '^%S+ %S+ %S+ (%d+)%*') ~= ARGV[3] then return 0 end
if owned then
  redis.call('DEL', key)
  if KEYS[4] then redis.call('ZREM', KEYS[4], key) end
elseif value then
  return 0
end
local passed_on
if KEYS[3] then passed_on = grant_next(key, waiters, KEYS[3], KEYS[4]) else passed_on = wake(key, waiters) end
return passed_on and 2 or owned and 1 or 0
