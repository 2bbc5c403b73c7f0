import type { Agent } from 'node:http';
import { sendRaw } from './http.ts';
import { idParam, type Ledger } from './ledger.ts';
import { signalProcess } from './processes.ts';
import type { TestService } from './service.ts';
import { waitFor } from './wait.ts';

export interface KeyedEvent {
  readonly key: string;
  readonly name: string;
  readonly user: string;
  /** Keeps connections, for many events. */
  readonly agent?: Agent;
  readonly isReuse?: boolean;
}

/**
 * Imports one event under a key until it is acknowledged, as the contract requires of clients. `isReuse`: the key was
 * used for another event, so that the import process may reject it with 400.
 */
export async function importEvent(
  service: TestService,
  token: string,
  { key, name, user, agent, isReuse = false }: KeyedEvent,
): Promise<void> {
  const body = Buffer.from(
    JSON.stringify({ customUserId: user, customEventName: name, customEventParams: { [idParam]: name } }),
  );
  const headers = { authorization: token, 'idempotency-key': key };
  const acknowledged = (): Promise<boolean> =>
    sendRaw(Number(new URL(service.s2s).port), {
      verb: 'POST',
      path: '/v1/customEvent/?idApp=1',
      headers,
      body,
      ...(agent === undefined ? {} : { agent }),
    }).then(
      ({ status, body: text }) => status === 200 || (isReuse && status === 400 && text.includes('Bad Request')),
      () => false,
    );
  await waitFor(`the event ${name} is acknowledged`, acknowledged, 60_000);
}

/**
 * Sends events that are stored differently from ordinary ones: `each` keys repeated with another body, which must fail,
 * and `each` events of a user to be erased (`forgotten`). The ledger gets the first bodies. In between, the import
 * processes are killed: they would reject the keys that they have passed on.
 */
export async function fillEveryPlace(
  service: TestService,
  token: string,
  { ledger, each }: { readonly ledger: Ledger; readonly each: number },
): Promise<void> {
  const names = Array.from({ length: each }, () => ledger.nextId());
  for (const name of names) await importEvent(service, token, { key: name, name, user: 'steady' });
  ledger.record(names, 'acknowledged');
  for (const { role, pid } of service.processes()) if (role === 'ingest') signalProcess(pid, 'SIGKILL');
  for (const [n, name] of names.entries()) {
    await importEvent(service, token, { key: name, name: `another body of ${name}`, user: 'steady' });
    await importEvent(service, token, { key: `forgotten-${n}`, name: `forgotten-${n}`, user: 'forgotten' });
  }
}
