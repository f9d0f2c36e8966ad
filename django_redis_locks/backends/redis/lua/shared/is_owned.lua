-- Returns whether a value is a lock with this token. If the user may not read the value, also returns the error.
local function is_owned(value, token)
  if not value then return false end
  if value.err then
    if string.find(value.err, 'WRONGTYPE') then return false end
    return false, value
  end
  local prefix = '1 lock ' .. token .. ' '
  return string.sub(value, 1, #prefix) == prefix
end
