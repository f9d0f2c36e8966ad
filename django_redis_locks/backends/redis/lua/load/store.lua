-- Ends a load and stores its value, if the token still has the lease or the permit. Voids other permits and notifies all
-- waiters. During the replica lag the value is stored only until the end of the lag. The first write is DEL, which a server
-- at maxmemory allows.
--
-- uses wake wake_all read_value read_load
-- KEYS  lease, waiters, generation, replica lag, permit, and if values are in this store: value
-- ARGV  token, ms to keep it (-1: for ever, 0: not at all), value, 1 if the token is that of the permit
-- returns  1, or 0 if the claim is gone and nothing was stored
local generation = redis.call('GET', KEYS[3]) or '0'
local held = ARGV[4] == '1' and KEYS[5] or KEYS[1]
if read_load(held, generation) ~= ARGV[1] then return 0 end
redis.call('DEL', held, KEYS[5])
local done, ttl = 1, tonumber(ARGV[2])
if KEYS[6] and ttl ~= 0 then
  local lag = redis.call('PTTL', KEYS[4])
  if lag > 0 and (ttl < 0 or ttl > lag) then ttl = lag end
  if ttl < 0 then
    done = redis.pcall('SET', KEYS[6], ARGV[3])
  else
    done = redis.pcall('SET', KEYS[6], ARGV[3], 'PX', ttl)
  end
  if not done.err then done = 1 end
end
wake_all(KEYS[1], KEYS[2])
return done
