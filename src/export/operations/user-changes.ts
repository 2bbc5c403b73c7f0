import { noAccount, type User } from '../../access/access.ts';
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

import { badRequest, defined, type Refusal } from '../api/envelope.ts';
import { parseId, single } from '../api/methods-routes.ts';
import { type OperatorMethods, parseIdOrNone, parseLabel, parsePage, takePage } from './operator-methods.ts';

const longestName = 100;
const idExpected = badRequest('Argument idUser is expected: the id of a user');
const ownSelf = badRequest('Nobody removes themselves: another operator does it, or tributary user remove');
const filesInvalid = badRequest('Argument files is auto or gzip');

const isPacking = (text: string): text is 'auto' | 'gzip' => text === 'auto' || text === 'gzip';

/** Parses 1 or 0; undefined for other texts. */
function parseSwitch(given: Arguments, name: string): boolean | undefined {
  return { '1': true, '0': false }[single(given, name) ?? ''];
}

function parseUser(given: Arguments): NewUser | Refusal {
  const name = parseLabel(single(given, 'name'), longestName);
  if (name === undefined) return badRequest(`Argument name is expected: a text of at most ${longestName} characters`);
  const isOperator = given.has('operator') ? parseSwitch(given, 'operator') : false;
  const mayExport = given.has('canExport') ? parseSwitch(given, 'canExport') : true;
  if (isOperator === undefined || mayExport === undefined)
    return badRequest('Arguments operator and canExport are 1 or 0');
  const hasAccount = given.has('idAccount') || !isOperator;
  const idAccount = hasAccount ? parseId(single(given, 'idAccount')) : noAccount;
  if (idAccount === undefined) return badRequest('Argument idAccount is expected: a whole number from 1');
  const maxExports = parseId(single(given, 'maxExports'));
  if (given.has('maxExports') && maxExports === undefined)
    return badRequest('Argument maxExports is a whole number from 1');
  const files = single(given, 'files') ?? 'auto';
  if (!isPacking(files)) return filesInvalid;
  return {
    name,
    idAccount,
    canExport: hasAccount && mayExport,
    ...defined({
      operator: isOperator ? (true as const) : undefined,
      maxExports,
      files: files === 'gzip' ? files : undefined,
    }),
  };
}

function parseUserSettings(given: Arguments): UserSettings | Refusal {
  const canExport = parseSwitch(given, 'canExport');
  if (given.has('canExport') && canExport === undefined) return badRequest('Argument canExport is 1 or 0');
  const maxExports = parseIdOrNone(single(given, 'maxExports'));
  if (given.has('maxExports') && maxExports === undefined)
    return badRequest('Argument maxExports is a whole number from 1, or none');
  const files = single(given, 'files');
  if (files !== undefined && !isPacking(files)) return filesInvalid;
  if (canExport === undefined && maxExports === undefined && files === undefined)
    return badRequest('Argument canExport, maxExports or files is expected');
  return defined({ canExport, maxExports, files });
}

/** Adds the methods of operators on users and their secrets. */
export function addUserChanges({ look, change }: OperatorMethods, paths: AccessPaths): void {
  look('/api/operations/v1/users.json', 'operations_users', ['search', 'offset', 'limit'], async (given) => {
    const page = parsePage(given);
    if ('code' in page) return page;
    const users = await listUsers(paths);
    const { items, total } = takePage(users, page, ({ idUser, name, idAccount }) => [idUser, name, idAccount]);
    return { users: items, total };
  });

  const known = ['name', 'idAccount', 'operator', 'canExport', 'maxExports', 'files'];
  change('/api/operations/v1/user/add.json', 'operations_user_add', known, async (given) => {
    const user = parseUser(given);
    return 'code' in user ? user : await addUser(paths, user);
  });
  const ofUser = (
    verb: string,
    others: readonly string[],
    work: (idUser: number, given: Arguments, operator: User) => Promise<object>,
  ): void => {
    const url = `/api/operations/v1/user/${verb}.json`;
    change(url, `operations_user_${verb}`, ['idUser', ...others], async (given, operator) => {
      const idUser = parseId(single(given, 'idUser'));
      return idUser === undefined ? idExpected : await work(idUser, given, operator);
    });
  };
  ofUser('set', ['canExport', 'maxExports', 'files'], async (idUser, given) => {
    const settings = parseUserSettings(given);
    return 'code' in settings ? settings : await setUser(paths, idUser, settings);
  });
  ofUser('secret', [], (idUser) => renewSecret(paths, idUser));
  ofUser('remove', [], async (idUser, _given, operator) =>
    String(idUser) === operator.idUser ? ownSelf : await removeUser(paths, idUser),
  );
}
