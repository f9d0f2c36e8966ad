-- Returns whether a value is that of a lock with this token; if the right to read it is missing, also the error.
local function is_owned(value, token)
  if not value then return false end
  if value.err then
    if string.find(value.err, 'WRONGTYPE') then return false end
    return false, value
  end
  local mine = '1 lock ' .. token .. ' '
  return string.sub(value, 1, #mine) == mine
end
