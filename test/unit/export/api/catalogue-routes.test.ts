import { EventEmitter, once } from 'node:events';
import { expect, it } from 'vitest';
import type { AccessReader, User } from '../../../../src/access/access.ts';
import { addCatalogueRoutes } from '../../../../src/export/api/data-routes.ts';
import type { CallContext, Method } from '../../../../src/export/api/methods-routes.ts';
import type { DataRequest, DataResult, InteractiveJobs } from '../../../../src/export/jobs/interactive-jobs.ts';
import { machineClock } from '../../../../src/runtime/clock.ts';

/** The method for an account with app 1, which may be removed, and a reader that ends with `ended`. */
function createMethod(result: DataResult, ended: Promise<unknown> = Promise.resolve()) {
  const apps = [{ idApp: 1 }];
  const asked: DataRequest[] = [];
  const access = { current: () => ({ appsOfAccount: () => apps }) } as unknown as AccessReader;
  const ask = async (request: DataRequest) => {
    asked.push(request);
    await ended;
    return result;
  };
  const added: Method[] = [];
  const interactiveJobs = { ask } as unknown as InteractiveJobs;
  addCatalogueRoutes((_methods, _url, _name, method) => added.push(method), {
    access,
    interactiveJobs,
    clock: machineClock,
  });
  const context = { whileConnected: (work: (signal: AbortSignal) => unknown) => work(new AbortController().signal) };
  const call = async (given: Readonly<Record<string, string>>) =>
    await added[0]?.(
      { idAccount: 1, canExport: true } as User,
      new Map(Object.entries({ idApp: '1', ...given }).map(([name, value]) => [name, [value]])),
      context as unknown as CallContext,
    );
  return { call, asked, apps };
}

it('An app that is removed while its catalogue is read is not found', async () => {
  const reader = new EventEmitter();
  const { call, asked, apps } = createMethod({ kind: 'busy' }, once(reader, 'ended'));
  const answer = call({});
  await expect.poll(() => asked.length).toBe(1);
  apps.pop();
  reader.emit('ended');
  await expect(answer).resolves.toMatchObject({ code: 404 });
});

it('The catalogue is read for the given dates, and for all dates by default', async () => {
  const { call, asked } = createMethod({ kind: 'busy' });
  await expect(call({ dateFrom: '2026-01-01', dateTo: '2026-01-31' })).resolves.toMatchObject({ code: 429 });
  await call({ days: '0', customEventName: 'level' });
  expect(asked.map(({ question }) => question)).toEqual([
    { ask: 'catalogue', days: 400, dates: { from: '2026-01-01', to: '2026-01-31' } },
    { ask: 'catalogue', days: 0, customEventName: 'level' },
  ]);
  for (const wrong of [{ dateFrom: '2026-01-01' }, { dateTo: 'today', dateFrom: '2026-01-01' }])
    await expect(call(wrong)).resolves.toMatchObject({ code: 400 });
  expect(asked).toHaveLength(2);
});
