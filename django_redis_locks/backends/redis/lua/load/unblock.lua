-- Gives back what was blocked under this token, and voids what was claimed since somebody else took it: that load may have
-- begun before the write. Another writer, whose token begins with w:, keeps what he has. All who wait are told.
--
-- uses wake wake_all read_value read_load
-- KEYS  generation (and for each value: lease, waiters, permit)
-- ARGV  token
-- returns  1
local generation = redis.call('GET', KEYS[1]) or '0'
for at = 2, #KEYS, 3 do
  redis.call('DEL', KEYS[at + 2])
  local token = read_load(KEYS[at], generation)
  if token and (token == ARGV[1] or string.sub(token, 1, 2) ~= 'w:') then
    redis.call('DEL', KEYS[at])
    wake_all(KEYS[at], KEYS[at + 1])
  end
end
return 1
