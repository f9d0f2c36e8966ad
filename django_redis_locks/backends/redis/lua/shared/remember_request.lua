-- Keeps the nonce of an answered request for some ms, so that its copies are recognized. Removes old nonces, at most 100.
-- The first write is ZREM, which a server at maxmemory allows even if there is nothing to remove, and then all others of the
-- script.
local function remember_request(requests, nonce, kept)
  local now = now_ms(redis.call('TIME'))
  local old = redis.call('ZRANGEBYSCORE', requests, '-inf', now, 'LIMIT', 0, 100)
  redis.call('ZREM', requests, nonce, unpack(old))
  redis.call('ZADD', requests, now + kept, nonce)
  if redis.call('PTTL', requests) < tonumber(kept) then redis.call('PEXPIRE', requests, kept) end
end
