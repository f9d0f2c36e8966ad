-- Lets the lease of my lock end so many milliseconds from now, or later if it did anyway: a late copy of an earlier
-- request must not cut it. The first write is PEXPIRE, which a server at maxmemory allows.
--
-- KEYS  lock, index
-- ARGV  token, lease in ms
-- returns  1 mine, 0 not mine
local lease = tonumber(ARGV[2])
local token = redis.pcall('HGET', KEYS[1], 'token')
if type(token) == 'table' and not string.find(token.err, 'WRONGTYPE') then return token end -- a right is missing
if token ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], lease)
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease), KEYS[1])
end
return 1
