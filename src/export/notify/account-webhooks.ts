import { randomBytes } from 'node:crypto';
import type { AccessReader } from '../../access/access.ts';
import { readNotices } from '../../lake/catalogue/catalogue-files.ts';
import { isExpired, isInProgress, type ReportJob } from '../../reports/reports.ts';
import { AppError } from '../../runtime/errors.ts';
import { openSchedules, readScheduleProgress } from '../../schedules/schedule-store.ts';
import { readDeliveryLog, type SentMessage } from '../../webhooks/delivery-log.ts';
import { openWebhooks, rotateWebhookSecret, type Webhook } from '../../webhooks/webhook-store.ts';
import { findStop } from '../../schedules/schedules.ts';
import { renderMessage, renderNotice, renderStop, renderTest, type Message } from './message.ts';
import { createSender, type WebhookSenderDependencies } from './sender.ts';
import { defaultDeliveryOptions } from './retry-schedule.ts';

export type AccountWebhooks = ReturnType<typeof createAccountWebhooks>;

export interface AccountWebhookDependencies extends Omit<WebhookSenderDependencies, 'brokenWebhooks'> {
  readonly lakeDir: string;
  readonly schedules: string;
  readonly access: AccessReader;
  readonly findJob: (id: number) => Promise<ReportJob | undefined>;
}

const hourMs = 3_600_000;

/** Creates the rendering of a recorded message; undefined if its export, notice or stop no longer exists. */
function createRenderer({ lakeDir, schedules, access, clock, findJob }: AccountWebhookDependencies) {
  async function renderExport(idAccount: number, idWebhook: string, id: number): Promise<Message | undefined> {
    const job = await findJob(id);
    const isThere = job?.idAccount === idAccount && !isInProgress(job) && !isExpired(job, clock.nowMs());
    return isThere ? renderMessage(job, idWebhook) : undefined;
  }

  async function renderSchedule(
    idAccount: number,
    idWebhook: string,
    idSchedule: string,
  ): Promise<Message | undefined> {
    const schedule = await openSchedules(schedules).find(idAccount, idSchedule);
    const stop = schedule && findStop(schedule, await readScheduleProgress(schedules, schedule));
    return stop && renderStop(stop, idWebhook);
  }

  async function renderFound(idAccount: number, idWebhook: string, id: string): Promise<Message | undefined> {
    const notice = (await readNotices(lakeDir)).find((one) => one.id === id);
    const isOwn = notice !== undefined && access.current().findApp(notice.idApp)?.idAccount === idAccount;
    return isOwn ? renderNotice(notice, idWebhook) : undefined;
  }

  return async ({ idAccount, idWebhook }: Webhook, sent: SentMessage): Promise<Message | undefined> => {
    const { type, subject, idMessage } = sent;
    const name = idMessage.slice(-16);
    const message =
      type === 'webhook.test'
        ? renderTest(idWebhook, name, clock.nowMs())
        : type === 'schedule.stopped'
          ? await renderSchedule(idAccount, idWebhook, subject)
          : type === 'catalogue.notice'
            ? await renderFound(idAccount, idWebhook, subject)
            : await renderExport(idAccount, idWebhook, Number(subject));
    // An id may belong to another export after a restore.
    return message?.id === idMessage ? message : undefined;
  };
}

/**
 * Creates the methods of users on the messages of their account's webhooks; those of other accounts are not found
 * (undefined). Errors: `record_damaged`, `locked`, those of the disk.
 */
export function createAccountWebhooks(dependencies: AccountWebhookDependencies) {
  const { paths, clock } = dependencies;
  const send = createSender(dependencies, defaultDeliveryOptions.timeoutMs, new AbortController().signal);
  const render = createRenderer(dependencies);

  /** Sends a message now, and returns the record of the attempt. */
  async function sendNow(webhook: Webhook, message: Message): Promise<SentMessage> {
    const result = await send(webhook, message);
    const sent = (await readDeliveryLog(paths, webhook)).find(({ idMessage }) => idMessage === message.id);
    if (sent !== undefined) return sent;
    const why = 'lastError' in result ? result.lastError : 'the attempt cannot be recorded';
    throw new AppError('conflict', `the message was not sent: ${why}`, {
      hint: 'Check the webhook in the list of webhooks, then retry.',
    });
  }

  return {
    /** Sends a test message now. */
    async test(idAccount: number, idWebhook: string): Promise<SentMessage | undefined> {
      const webhook = await openWebhooks(paths).find(idAccount, idWebhook);
      const name = randomBytes(8).toString('hex');
      return webhook && sendNow(webhook, renderTest(idWebhook, name, clock.nowMs()));
    },
    /** Lists the messages with the newest attempts, newest first. */
    async deliveries(idAccount: number, idWebhook: string): Promise<readonly SentMessage[] | undefined> {
      const webhook = await openWebhooks(paths).find(idAccount, idWebhook);
      return webhook && readDeliveryLog(paths, webhook);
    },
    /** Sends a recorded message again now, under its id. `gone`: what it reports no longer exists. */
    async resend(
      idAccount: number,
      idWebhook: string,
      idMessage: string,
    ): Promise<SentMessage | 'unknown' | 'gone' | undefined> {
      const webhook = await openWebhooks(paths).find(idAccount, idWebhook);
      if (webhook === undefined) return undefined;
      const sent = (await readDeliveryLog(paths, webhook)).find((one) => one.idMessage === idMessage);
      if (sent === undefined) return 'unknown';
      const message = await render(webhook, sent);
      return message === undefined ? 'gone' : sendNow(webhook, message);
    },
    /** Replaces the secret; the former one also signs for a number of hours. */
    rotate(idAccount: number, idWebhook: string, hours: number) {
      return rotateWebhookSecret(paths, idAccount, idWebhook, clock.nowMs() + hours * hourMs);
    },
  };
}
