import { expect, test } from 'vitest';
import type { AccessReader, App, User } from '../../../../src/access/access.ts';
import { createSlotExports, validateApps } from '../../../../src/export/schedules/reconcile.ts';
import type { Schedule } from '../../../../src/schedules/schedules.ts';
import { formatRequest } from '../../../helpers/format-request.ts';

const spec = { ...formatRequest(), sinceVersion: '0' };
const schedule = {
  idAccount: 1,
  idUser: '5',
  rule: { every: 'day', at: '04:00', timezone: 'UTC' },
  arguments: [],
  sinceVersion: '0',
} as unknown as Schedule;
const user = { idUser: '5', idAccount: 1, canExport: true } as User;

const appOf = (idApp: number, idAccount: number): App => ({
  idApp,
  idAccount,
  platform: 'web',
  title: '',
  sdkKey: `key ${idApp}`,
  idProject: undefined,
});
const apps = [appOf(7, 1), appOf(8, 2)];

/** Access data with at most one user, of which parts may be missing. */
function accessOf(found: User | undefined, lacks = false): AccessReader {
  return {
    current: () => ({
      findUser: () => found,
      appsOfAccount: (idAccount: number) => apps.filter((app) => app.idAccount === idAccount),
    }),
    mayMissUsers: () => lacks,
    mayMissApps: () => lacks,
  } as unknown as AccessReader;
}

/** Arguments of the export of a slot. */
async function order(access: AccessReader, request = spec): Promise<unknown> {
  const make = createSlotExports({
    access,
    parseRequest: async () => request,
    lakeDir: '',
    clock: { nowMs: () => 0 },
    slotClock: { timeOf: async () => 0, newest: async () => 0 },
  });
  return await make(schedule, 1, undefined, 0);
}

test('A slot is exported for the user of its schedule while that user is in its account and may export', async () => {
  expect(await order(accessOf(user))).toMatchObject({ user: { idUser: '5' } });
  expect(await order(accessOf(undefined))).toEqual({ reason: 'user 5 was removed' });
  expect(await order(accessOf({ ...user, idAccount: 2 }))).toEqual({ reason: 'user 5 was removed' });
  expect(await order(accessOf({ ...user, canExport: false }))).toEqual({ reason: 'user 5 lacks export permissions' });
  // The access data cannot be read, so the user may exist.
  expect(await order(accessOf(undefined, true))).toBe('later');
});

test('A slot that names apps is exported while its account has one of them', async () => {
  expect(await order(accessOf(user), { ...spec, idApp: ['7', '8'] })).toMatchObject({ isOverdue: false });
  const gone = { reason: 'the account has none of its apps' };
  expect(await order(accessOf(user), { ...spec, idApp: ['8'] })).toEqual(gone);
  expect(await order(accessOf(user), { ...spec, SDKKey: ['key 8'] })).toEqual(gone);
  expect(validateApps(accessOf(user), 3, spec)).toBeUndefined();
});
