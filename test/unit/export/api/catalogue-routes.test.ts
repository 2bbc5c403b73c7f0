import { expect, it } from 'vitest';
import type { AccessReader, User } from '../../../../src/access/access.ts';
import { addCatalogueRoutes } from '../../../../src/export/api/catalogue-routes.ts';
import type { CallContext, Method } from '../../../../src/export/api/methods-routes.ts';
import type { Catalogue } from '../../../../src/lake/catalogue/read-catalogue.ts';

const empty: Catalogue = {
  version: 1,
  missingFiles: 0,
  customEvents: [],
  more: { names: 0, events: 0 },
  notices: [],
};

/** The method, over accounts that have the app of their own number, and readers that wait until they are let go. */
function createMethod() {
  const taken = new Set<number>();
  const access = {
    current: () => ({ findApp: (idApp: number) => (taken.has(idApp) ? undefined : { idAccount: idApp }) }),
  } as unknown as AccessReader;
  const reading: { readonly idApp: number; readonly end: () => void }[] = [];
  const added: Method[] = [];
  addCatalogueRoutes((_methods, _url, _name, method) => added.push(method), {
    access,
    read: (idApp) => new Promise((resolve) => reading.push({ idApp, end: () => resolve(empty) })),
  });
  const call = async (idAccount: number) => {
    const given = new Map([['idApp', [String(idAccount)]]]);
    return await added[0]?.({ idAccount, canExport: true } as User, given, {} as CallContext);
  };
  return { call, reading, taken };
}

it('Calls for the catalogue are read one of an account at a time, and of one that makes too many the others are refused', async () => {
  const { call, reading } = createMethod();
  const calls = Array.from({ length: 8 }, () => call(1));
  await expect(call(1)).resolves.toMatchObject({ code: 429, retryAfterSeconds: 1 });
  const other = call(2);
  await expect.poll(() => reading.map(({ idApp }) => idApp)).toEqual([1, 2]);
  reading[1]?.end();
  await expect(other).resolves.toMatchObject({ data: { version: '1' } });
  for (let n = 0; n < 8; n += 1) {
    const ofOne = () => reading.filter(({ idApp }) => idApp === 1);
    await expect.poll(() => ofOne().length).toBe(n + 1);
    ofOne()[n]?.end();
  }
  await Promise.all(calls);
  void call(1);
  await expect.poll(() => reading.length).toBe(10);
});

it('An app that is taken away while its catalogue is read is not found', async () => {
  const { call, reading, taken } = createMethod();
  const answer = call(1);
  await expect.poll(() => reading.length).toBe(1);
  taken.add(1);
  reading[0]?.end();
  await expect(answer).resolves.toMatchObject({ code: 404 });
});
