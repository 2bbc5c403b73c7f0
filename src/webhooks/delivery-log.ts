import { isAppError } from '../runtime/errors.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createRecords, type RecordKind, type Records } from '../runtime/store/records.ts';
import { isCount, isText, listOf, matching, oneOf, optional, shapeOf } from '../runtime/store/shape.ts';

export const messageTypes = [
  'export.finished',
  'export.failed',
  'catalogue.notice',
  'schedule.stopped',
  'webhook.test',
] as const;
export type MessageType = (typeof messageTypes)[number];

/**
 * A message to a webhook with its last attempt. It has no body, so it names no app, event or parameter, and an erasure
 * need not change it.
 */
export interface SentMessage {
  readonly idMessage: string;
  readonly type: MessageType;
  /** Id of the export, notice or schedule; empty for a test. */
  readonly subject: string;
  readonly attempts: number;
  /** Time of the last attempt, Unix ms. */
  readonly atMs: number;
  /** HTTP status of the response; absent without one. */
  readonly status?: number;
  /** Absent if it was delivered. It has no resolved address, which is internal to the network. */
  readonly problem?: string;
}

interface DeliveryLog {
  readonly messages: readonly SentMessage[];
}

/** Messages that are kept per webhook, those with the newest attempts. */
const keptMessages = 50;

const logKind: RecordKind<DeliveryLog> = {
  isValid: shapeOf<DeliveryLog>({
    messages: listOf(
      shapeOf<SentMessage>({
        idMessage: isText,
        type: oneOf(messageTypes),
        subject: matching(/^[\w.-]*$/),
        attempts: isCount,
        atMs: isCount,
        status: optional(isCount),
        problem: optional(isText),
      }),
    ),
  }),
  idForm: /^\d+\/wh_[0-9a-f]{16}$/,
  ending: '.deliveries.json',
  damaged: { code: 'record_damaged', hint: 'Remove the file: it has only the list of last deliveries.' },
};

interface WebhookId {
  readonly idAccount: number;
  readonly idWebhook: string;
}

interface LogPaths {
  readonly webhooks: string;
}

const toId = ({ idAccount, idWebhook }: WebhookId): string => `${idAccount}/${idWebhook}`;
const openLogs = ({ webhooks }: LogPaths): Records<DeliveryLog> => createRecords(openStore(webhooks), logKind);

/** Reads the messages with the newest attempts, newest first; none if the log is damaged. */
export async function readDeliveryLog(paths: LogPaths, id: WebhookId): Promise<readonly SentMessage[]> {
  const { messages } = (await openLogs(paths).getSound(toId(id))) ?? { messages: [] };
  return messages.toReversed();
}

/** Records an attempt to send a message, durably, and returns it. A damaged log begins again. */
export async function recordAttempt(
  paths: LogPaths,
  id: WebhookId,
  attempt: Omit<SentMessage, 'attempts'>,
): Promise<SentMessage> {
  const logs = openLogs(paths);
  let sent: SentMessage = { ...attempt, attempts: 1 };
  const add = (): Promise<unknown> =>
    logs.change(toId(id), (log) => {
      const { messages } = log ?? { messages: [] };
      const before = messages.find(({ idMessage }) => idMessage === attempt.idMessage);
      sent = { ...attempt, attempts: (before?.attempts ?? 0) + 1 };
      return { messages: [...messages.filter((other) => other !== before), sent].slice(-keptMessages) };
    });
  await add().catch(async (error: unknown) => {
    if (!isAppError(error, 'record_damaged')) throw error;
    await logs.remove(toId(id));
    await add();
  });
  return sent;
}

export async function removeDeliveryLog(paths: LogPaths, id: WebhookId): Promise<void> {
  await openLogs(paths).remove(toId(id));
}
