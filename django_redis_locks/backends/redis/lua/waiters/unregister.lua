-- Removes the address of a queue from the waiters, and frees the lock if it was granted to the token of that address. Or, with
-- the token and fence of a grant that no queue expects: frees the lock unless a request has claimed it since.
-- If the lock is free then, grants it to the next waiter, because the removed queue may have received a wake-up or a grant that
-- it didn't use. The first write is ZREM or DEL, which a server at maxmemory allows.
--
-- uses is_owned now_ms next_fence grant_next wake
-- KEYS  lock or record, waiters, and if it can be granted: fence counter, index
-- ARGV  address ('': it isn't registered any more), and of an unexpected grant: token, fence
-- returns  0, or 1 if the lock was freed, or 2 if another process was granted the lock or notified
local key, waiters, address = KEYS[1], KEYS[2], ARGV[1]
if address ~= '' then redis.call('ZREM', waiters, address) end
local value = redis.pcall('GET', key)
local token, granted_fence = ARGV[2] or string.match(address, '^%S+ %x+ (%S+)') or '', ARGV[3]
local owned, denied = is_owned(value, token)
if denied then return denied end
if value and not owned then return 0 end
if owned then
  if granted_fence and string.match(value, '^%S+ %S+ %S+ (%d+)%*') ~= granted_fence then return 0 end
  redis.call('DEL', key)
  if KEYS[4] then redis.call('ZREM', KEYS[4], key) end
end
local passed_on
if KEYS[3] then passed_on = grant_next(key, waiters, KEYS[3], KEYS[4]) else passed_on = wake(key, waiters) end
return passed_on and 2 or owned and 1 or 0
