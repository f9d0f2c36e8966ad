-- Extends the lease of a lock that has the token of the request; it is never shortened. If the lock was granted to a waiter,
-- and no request has claimed it yet, it gets the lease and the holder of the request, and a mark instead of the *.
local function claim(lock, value, left, lease, mark, details, index)
  local granted, since = string.match(value, '^(%S+ %S+ %S+ %d+)%*(@?%d*)') -- nil without a *
  if granted or left < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
    if index then redis.call('ZADD', index, 'XX', now_ms(redis.call('TIME')) + lease, lock) end
  end
  if granted then redis.pcall('SET', lock, granted .. mark .. since .. details, 'KEEPTTL') end
end
