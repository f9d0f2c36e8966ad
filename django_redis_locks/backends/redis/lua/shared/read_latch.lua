-- Reads a latch as a table: left, participants (the number of those that have counted), lifetime in ms, ms_left; and as text
-- nonce, generation and first, the generation since which each was counted down to 0. If there is no latch: left is 0, and generation is nil. If the
-- key holds another value: nil and {-1, what}.
local function read_latch(key)
  local value = redis.pcall('GET', key)
  if not value then return {left = 0} end
  local nonce, generation, _, details, ms_left = read_value(key, value, 'latch')
  if not nonce then return nil, generation end
  local left, participants, lifetime, first = string.match(details, '^(%d+) (%d+) (%d+) (%d+)$')
  if not left then return nil, {-1, 'a string'} end
  return {
    nonce = nonce, generation = generation, first = first, left = tonumber(left), participants = tonumber(participants),
    lifetime = lifetime, ms_left = ms_left,
  }
end
