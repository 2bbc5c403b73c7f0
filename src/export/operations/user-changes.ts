import { noAccount } from '../../access/access.ts';
import type { AccessPaths } from '../../access/access-file.ts';
import {
  addUser,
  listUsers,
  type NewUser,
  removeUser,
  renewSecret,
  setUser,
  type UserSettings,
} from '../../access/users.ts';
import type { Arguments } from '../api/arguments.ts';
import { badRequest, type Refusal } from '../api/envelope.ts';
import { single } from '../api/methods-routes.ts';
import { type OperatorMethods, parseId, parseIdOrNone, parseLabel, parsePage, takePage } from './operator-methods.ts';

const longestName = 100;
const idExpected = badRequest('Argument idUser is expected: the id of a user');
const ownSelf = badRequest('Nobody removes themselves: another operator does it, or tributary user remove');

/** A switch: 1 or 0; undefined for other texts. */
function parseSwitch(given: Arguments, name: string, fallback: boolean): boolean | undefined {
  if (!given.has(name)) return fallback;
  const text = single(given, name);
  return text === '1' || text === '0' ? text === '1' : undefined;
}

/** The new user that arguments describe, or what is wrong with them. */
function parseUser(given: Arguments): NewUser | Refusal {
  const name = parseLabel(single(given, 'name'), longestName);
  if (name === undefined) return badRequest(`Argument name is expected: a text of at most ${longestName} characters`);
  const [isOperator, mayExport] = [parseSwitch(given, 'operator', false), parseSwitch(given, 'canExport', true)];
  if (isOperator === undefined || mayExport === undefined)
    return badRequest('Arguments operator and canExport are 1 or 0');
  const hasAccount = given.has('idAccount') || !isOperator;
  const idAccount = hasAccount ? parseId(single(given, 'idAccount')) : noAccount;
  if (idAccount === undefined) return badRequest('Argument idAccount is expected: a whole number from 1');
  const maxExports = parseId(single(given, 'maxExports'));
  if (given.has('maxExports') && maxExports === undefined)
    return badRequest('Argument maxExports is a whole number from 1');
  const files = single(given, 'files') ?? 'auto';
  if (files !== 'auto' && files !== 'gzip') return badRequest('Argument files is auto or gzip');
  return {
    name,
    idAccount,
    canExport: hasAccount && mayExport,
    ...(isOperator ? { operator: true as const } : {}),
    ...(maxExports === undefined ? {} : { maxExports }),
    ...(files === 'gzip' ? { files } : {}),
  };
}

/** What arguments change of a user, or what is wrong with them. */
function parseUserSettings(given: Arguments): UserSettings | Refusal {
  const canExport = { '1': true, '0': false }[single(given, 'canExport') ?? ''];
  if (given.has('canExport') && canExport === undefined) return badRequest('Argument canExport is 1 or 0');
  const maxExports = parseIdOrNone(single(given, 'maxExports'));
  if (given.has('maxExports') && maxExports === undefined)
    return badRequest('Argument maxExports is a whole number from 1, or none');
  const files = single(given, 'files');
  if (files !== undefined && files !== 'auto' && files !== 'gzip') return badRequest('Argument files is auto or gzip');
  if (canExport === undefined && maxExports === undefined && files === undefined)
    return badRequest('Argument canExport, maxExports or files is expected');
  return {
    ...(canExport === undefined ? {} : { canExport }),
    ...(maxExports === undefined ? {} : { maxExports }),
    ...(files === undefined ? {} : { files }),
  };
}

/** Adds the methods by which operators see and change users and their secrets. */
export function addUserChanges({ look, change }: OperatorMethods, paths: AccessPaths): void {
  look('/api/operations/v1/users.json', 'operations_users', ['search', 'offset', 'limit'], async (given) => {
    const page = parsePage(given);
    if ('code' in page) return page;
    const { items, total } = takePage(await listUsers(paths), page, ({ idUser, name, idAccount }) => [
      idUser,
      name,
      idAccount,
    ]);
    return { users: items, total };
  });

  const known = ['name', 'idAccount', 'operator', 'canExport', 'maxExports', 'files'];
  change('/api/operations/v1/user/add.json', 'operations_user_add', known, async (given) => {
    const user = parseUser(given);
    return 'code' in user ? user : await addUser(paths, user);
  });
  const settable = ['idUser', 'canExport', 'maxExports', 'files'];
  change('/api/operations/v1/user/set.json', 'operations_user_set', settable, async (given) => {
    const idUser = parseId(single(given, 'idUser'));
    if (idUser === undefined) return idExpected;
    const settings = parseUserSettings(given);
    return 'code' in settings ? settings : await setUser(paths, idUser, settings);
  });
  change('/api/operations/v1/user/secret.json', 'operations_user_secret', ['idUser'], async (given) => {
    const idUser = parseId(single(given, 'idUser'));
    return idUser === undefined ? idExpected : await renewSecret(paths, idUser);
  });
  change('/api/operations/v1/user/remove.json', 'operations_user_remove', ['idUser'], async (given, user) => {
    const idUser = parseId(single(given, 'idUser'));
    if (idUser === undefined) return idExpected;
    return String(idUser) === user.idUser ? ownSelf : await removeUser(paths, idUser);
  });
}
