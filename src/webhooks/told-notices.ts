import { openStore } from '../runtime/store/open-store.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isCount, isText, listOf, shapeOf } from '../runtime/store/shape.ts';

/** The notices that a webhook has received, and the next attempt. */
export interface ToldNotices {
  /** Ids of received notices, the newest last. */
  readonly told: readonly string[];
  /** Ids of notices that failed; they are sent after the others. */
  readonly failed: readonly string[];
  /** Failed attempts in a row, and the time of the next, Unix ms. */
  readonly failures: number;
  readonly nextMs: number;
}

/** More than there are notices, past ones included, so that none is sent again. */
const mostTold = 8000;

const nothingTold: ToldNotices = { told: [], failed: [], failures: 0, nextMs: 0 };

const isToldNotices = shapeOf<ToldNotices>({
  told: listOf(isText),
  failed: listOf(isText),
  failures: isCount,
  nextMs: isCount,
});

/** Records of an account's webhooks, by id. */
type ToldByWebhook = Readonly<Record<string, ToldNotices>>;

export function toldTo(told: ToldByWebhook, idWebhook: string): ToldNotices {
  const known = told[idWebhook];
  return isToldNotices(known) ? known : nothingTold;
}

/** Opens the records. They name no app, event or parameter, so an erasure need not change them. */
function openTold(webhooksDir: string): Records<{ readonly webhooks: ToldByWebhook }> {
  return createRecords(openStore(webhooksDir), {
    isValid: shapeOf<{ readonly webhooks: ToldByWebhook }>({
      webhooks: (webhooks) => typeof webhooks === 'object' && webhooks !== null,
    }),
    damaged: { code: 'record_damaged', hint: 'Remove it: each notice is then sent once more.' },
  });
}

/** Reads the records of an account; empty if damaged, so that each notice is sent once more. */
export async function readToldNotices(webhooksDir: string, idAccount: number): Promise<ToldByWebhook> {
  return (await openTold(webhooksDir).getSound(`${idAccount}/notices`))?.webhooks ?? {};
}

/** Writes the records of an account, durably. */
export async function writeToldNotices(webhooksDir: string, idAccount: number, told: ToldByWebhook): Promise<void> {
  const webhooks = Object.fromEntries(
    Object.entries(told).map(([idWebhook, one]) => [idWebhook, { ...one, told: one.told.slice(-mostTold) }]),
  );
  await openTold(webhooksDir).put(`${idAccount}/notices`, { webhooks });
}
