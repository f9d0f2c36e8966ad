-- Keeps the nonce of a request that changed something for some ms, so that its copies are recognized. Removes old nonces, at
-- most 100.
local function remember_request(requests, nonce, kept)
  local now = now_ms(redis.call('TIME'))
  local old = redis.call('ZRANGEBYSCORE', requests, '-inf', now, 'LIMIT', 0, 100)
  if old[1] then redis.call('ZREM', requests, unpack(old)) end
  redis.call('ZADD', requests, now + kept, nonce)
  if redis.call('PTTL', requests) < tonumber(kept) then redis.call('PEXPIRE', requests, kept) end
end
