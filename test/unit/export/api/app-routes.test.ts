import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { addApp } from '../../../../src/access/apps.ts';
import { addUser } from '../../../../src/access/users.ts';
import { openAccessReader } from '../../../../src/access/store.ts';
import { addAppRoutes } from '../../../../src/export/api/account-routes.ts';
import type { CallContext, Method } from '../../../../src/export/api/methods-routes.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { silentLogger } from '../../../helpers/nats.ts';

const call: CallContext = {
  baseUrl: '',
  isGone: () => false,
  headers: {},
  isStillSignedIn: () => true,
  whileConnected: (work) => work(new AbortController().signal),
};

describe('the live view of users', () => {
  it('Without a configured broker, the export area reports that, and not an unreachable broker', async () => {
    const folder = testFolder();
    const paths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
    await addApp(paths, { idApp: 1, platform: 'web', idAccount: 1 }, Date.now());
    const { idUser } = await addUser(paths, { name: 'analyst', idAccount: 1, canExport: true });
    const access = await openAccessReader(paths, silentLogger);
    onTestFinished(() => access.close());
    const methods = new Map<string, Method>();
    addAppRoutes((_methods, url, _name, method) => void methods.set(url, method), access, {
      readRefusals: () => Promise.resolve({ refusals: [] }),
    });
    const user = access.current().findUser(idUser);
    if (user === undefined) throw new Error('the user is unknown');
    const answer = await methods.get('/api/app/v1/live')?.(user, new Map([['idApp', ['1']]]), call);
    expect(answer).toMatchObject({
      code: 503,
      detail: 'The live view is off: the export area has no broker configured',
    });
  });
});
