import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { addDestination } from '../../../../src/destinations/destination-store.ts';
import { startDeliverer } from '../../../../src/export/deliver/deliverer.ts';
import { openReportStore } from '../../../../src/reports/store.ts';
import { machineClock as clock } from '../../../../src/runtime/clock.ts';
import { createEgressPolicy, type EgressPolicy } from '../../../../src/runtime/http/egress-policy.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { startFakeS3 } from '../../../helpers/fake-s3.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';
import { startHangingReceiver } from '../../../helpers/webhook-receiver.ts';

const logger = createLogger('silent');
const rules = createEgressPolicy(['127.0.0.0/8']) as EgressPolicy;

async function openPlace() {
  const folder = testFolder();
  const paths = { destinations: path.join(folder, 'destinations'), keys: path.join(folder, 'keys') };
  const store = await openReportStore(clock, logger, { reportsDir: `${folder}/reports`, linkTtlSeconds: 3600 });
  const deliverer = startDeliverer({ store, paths, rules, clock: clock, logger, renderManifest: () => '{}' });
  onTestFinished(() => deliverer.stop());
  async function add(url: string, idAccount: number): Promise<string> {
    const { origin: endpoint } = new URL(url);
    const place = { endpoint, region: 'us-east-1', bucket: 'lake', prefix: '', pathStyle: true, accessKeyId: 'a' };
    const target = { kind: 's3' as const, ...place };
    const added = { idAccount, name: 'Bucket', createdMs: 0, target };
    return (await addDestination(paths, added, 'secret')).idDestination;
  }
  async function deliver(deliverTo: string, idAccount: number): Promise<number> {
    const { id } = await store.create({ idUser: '1', idAccount, event: 'customEvents', request: {}, deliverTo });
    const { folder: attempt } = await store.beginAttempt(id);
    await store.end(id, { state: 'success', files: [] }, attempt);
    deliverer.deliver(id);
    return id;
  }
  return { store, deliverer, add, deliver };
}

describe('the deliverer', () => {
  it('Slow destinations of one account do not stop deliveries of another account', async () => {
    const [slow, fast] = [await startHangingReceiver(), await startFakeS3()];
    const { store, add, deliver } = await openPlace();
    const slowOnes = [await add(slow.url, 1), await add(slow.url, 1), await add(slow.url, 1)];
    // The first gets more exports than the slots of all.
    for (const id of [...Array.from({ length: 4 }, () => slowOnes[0] ?? ''), ...slowOnes]) await deliver(id, 1);
    await waitFor('the slow server is asked', () => slow.received.length === 2);
    const id = await deliver(await add(fast.endpoint, 2), 2);
    await waitFor(
      'the other one is delivered',
      async () => (await store.readDelivery(id))?.state === 'delivered',
      3000,
    );
    expect(slow.received.length).toBe(2);
  });

  it('Exports that wait for one destination raise no warning of a leak, and all are delivered', async () => {
    const warnings: Error[] = [];
    const note = (warning: Error): void => void warnings.push(warning);
    process.on('warning', note);
    onTestFinished(() => void process.off('warning', note));
    const fast = await startFakeS3();
    const { store, add, deliver } = await openPlace();
    const idDestination = await add(fast.endpoint, 1);
    const ids = await Promise.all(Array.from({ length: 30 }, () => deliver(idDestination, 1)));
    for (const id of ids)
      await waitFor('it is delivered', async () => (await store.readDelivery(id))?.state === 'delivered');
    expect(warnings.filter(({ name }) => name === 'MaxListenersExceededWarning')).toEqual([]);
  });

  it('A stop ends requests to a bucket at once, and a delivery that another host has made stays', async () => {
    const slow = await startHangingReceiver();
    const { store, deliverer, add, deliver } = await openPlace();
    const id = await deliver(await add(slow.url, 1), 1);
    await waitFor('the slow server is asked', () => slow.received.length === 1);
    const delivered = { state: 'delivered', attempts: 1, nextMs: 0, files: 0, atMs: 1 } as const;
    await store.writeDelivery(id, delivered);
    const begunMs = performance.now();
    await deliverer.stop();
    expect(performance.now() - begunMs).toBeLessThan(2000);
    expect(await store.readDelivery(id)).toEqual(delivered);
  });

  it('A failed attempt does not replace the delivery that another host has made', async () => {
    const slow = await startHangingReceiver();
    const { store, deliverer, add, deliver } = await openPlace();
    const id = await deliver(await add(slow.url, 1), 1);
    await waitFor('the slow server is asked', () => slow.received.length === 1);
    const delivered = { state: 'delivered', attempts: 1, nextMs: 0, files: 0, atMs: 1 } as const;
    await store.writeDelivery(id, delivered);
    slow.answer(403);
    await waitFor('the manifest is sent', () => slow.received.length === 2);
    slow.answer(403);
    await waitFor('the attempt has failed', () => deliverer.notices().length === 1);
    expect(await store.readDelivery(id)).toEqual(delivered);
  });
});
