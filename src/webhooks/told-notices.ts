import { createFolderStore } from '../runtime/store/folder-store.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isCount, isText, listOf, shapeOf } from '../runtime/store/shape.ts';

/** The notices of the catalogue that a webhook has taken, and the next try. */
export interface ToldNotices {
  /** Ids of those that it has taken, the newest last. */
  readonly told: readonly string[];
  /** Ids of those that it was sent and has not taken yet: they come after the others. */
  readonly failed: readonly string[];
  /** Tries in a row that have failed, and when the next is due, Unix milliseconds. */
  readonly failures: number;
  readonly nextMs: number;
}

/** More than there are notices at a time, past ones included, so that the bound has none sent again. */
const mostTold = 8000;

const nothingTold: ToldNotices = { told: [], failed: [], failures: 0, nextMs: 0 };

const isToldNotices = shapeOf<ToldNotices>({
  told: listOf(isText),
  failed: listOf(isText),
  failures: isCount,
  nextMs: isCount,
});

/** What the webhooks of an account have taken, by the id of each. */
export type ToldByWebhook = Readonly<Record<string, ToldNotices>>;

/** Returns what one of them has taken. */
export function toldTo(told: ToldByWebhook, idWebhook: string): ToldNotices {
  const known = told[idWebhook];
  return isToldNotices(known) ? known : nothingTold;
}

/** Opens the records of what webhooks have taken. They name no app, event or parameter: what is erased is not in them. */
function openTold(webhooksDir: string): Records<{ readonly webhooks: ToldByWebhook }> {
  return createRecords(createFolderStore(webhooksDir), {
    isValid: shapeOf<{ readonly webhooks: ToldByWebhook }>({
      webhooks: (webhooks) => typeof webhooks === 'object' && webhooks !== null,
    }),
    damaged: { code: 'record_damaged', hint: 'Remove it: each notice is then sent once more.' },
  });
}

/** Reads what the webhooks of an account have taken. Of a damaged record, each is sent once more. */
export async function readToldNotices(webhooksDir: string, idAccount: number): Promise<ToldByWebhook> {
  return (await openTold(webhooksDir).getSound(`${idAccount}/notices`))?.webhooks ?? {};
}

/** Writes what the webhooks of an account have taken, durably. */
export async function writeToldNotices(webhooksDir: string, idAccount: number, told: ToldByWebhook): Promise<void> {
  const webhooks = Object.fromEntries(
    Object.entries(told).map(([idWebhook, one]) => [idWebhook, { ...one, told: one.told.slice(-mostTold) }]),
  );
  await openTold(webhooksDir).put(`${idAccount}/notices`, { webhooks });
}
