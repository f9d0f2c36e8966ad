-- Reads a record: {0} if there is none, {0, ms left, version, fields}, or {-1, what} if something else lives there. The nonce
-- of its last write comes second.
local function read_record(key)
  local value = redis.pcall('GET', key)
  if not value then return {0} end
  local nonce, version, _, fields, left = read_value(key, value, 'record')
  if not nonce then return version end
  return {0, left, version, fields}, nonce
end
