import { openAccessReader } from '../access/store.ts';
import { assertAccount } from '../access/users.ts';
import { createAccountWebhooks, type AccountWebhooks } from '../export/notify/account-webhooks.ts';
import { describeDelivery, describeWebhook, parseWebhookUrl, resendRefusals } from '../export/api/webhook-routes.ts';
import { openJobRecords } from '../reports/report-records.ts';
import { AppError } from '../runtime/errors.ts';
import { createEgressPolicy, type EgressPolicy } from '../runtime/http/egress-policy.ts';
import { createLogger } from '../runtime/logger.ts';
import { openStore } from '../runtime/store/open-store.ts';
import type { SentMessage } from '../webhooks/delivery-log.ts';
import { addWebhook, openWebhooks, removeWebhook, rotationHours } from '../webhooks/webhook-store.ts';
import { defineDataCommand, type CommandGroup, type DataContext } from './command.ts';
import { parsed, positive, failUsage, required, text, withDefault } from './option-specs.ts';

const account = required(positive('account id', 'ID'));
const id = text("webhook id, see 'tributary webhook list'");
const example = 'wh_3f2a90c1d84b7e65 --account 1';

function getRules({ config }: DataContext): EgressPolicy {
  const rules = createEgressPolicy(config.webhooksAllow);
  if (typeof rules !== 'string') return rules;
  throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW has the invalid entry '${rules}'`, {
    hint: 'Set networks such as 10.1.0.0/16 and host names such as hooks.example.com.',
  });
}

const noWebhook = (idAccount: number, idWebhook: string): AppError =>
  new AppError('not_found', `account ${idAccount} has no webhook ${idWebhook}`, {
    hint: "Run 'tributary webhook list' for all webhooks.",
  });

/** Runs work on the webhooks of a data folder, with the service running or stopped. */
async function withWebhooks<T>(context: DataContext, run: (webhooks: AccountWebhooks) => Promise<T>): Promise<T> {
  const { config, paths, clock } = context;
  const logger = createLogger(config.logLevel);
  const access = await openAccessReader(paths, logger);
  const jobs = openJobRecords(openStore(paths.reports));
  try {
    const webhooks = createAccountWebhooks({
      paths,
      rules: getRules(context),
      clock,
      logger,
      lakeDir: paths.lake,
      schedules: paths.schedules,
      access,
      findJob: (idReport) => jobs.get(String(idReport)),
    });
    return await run(webhooks);
  } finally {
    access.close();
  }
}

const add = defineDataCommand({
  name: 'add',
  summary: 'create a webhook and print its signing secret, which is shown only once',
  arguments: { URL: text('public URL, or one that TRIBUTARY_WEBHOOKS_ALLOW allows') },
  options: { account },
  examples: ['webhook add https://hooks.example.com/exports --account 1'],
  async run({ URL: word, account: idAccount }, context) {
    const { paths, clock } = context;
    await assertAccount(paths, idAccount);
    const url = parseWebhookUrl(word, getRules(context));
    if (typeof url === 'string') failUsage(`URL ${url}`);
    const nowMs = clock.nowMs();
    const { webhook, secret } = await addWebhook(paths, { idAccount, url: url.href, createdMs: nowMs });
    return { idWebhook: webhook.idWebhook, idAccount, url: webhook.url, secret };
  },
});

const list = defineDataCommand({
  name: 'list',
  summary: 'list the webhooks of an account',
  isList: true,
  options: { account },
  examples: ['webhook list --account 1'],
  async run({ account: idAccount }, { paths }) {
    const { known, damaged } = await openWebhooks(paths).list(idAccount);
    const listed: object[] = [];
    for (const { sealedSecret: _, formerSecret: _former, ...webhook } of known) listed.push(webhook);
    return [...listed, ...damaged.map((idWebhook) => ({ idWebhook, status: 'Damaged' }))];
  },
});

const remove = defineDataCommand({
  name: 'remove',
  summary: 'remove a webhook',
  arguments: { ID: id },
  options: { account },
  examples: [`webhook remove ${example}`],
  async run({ ID: idWebhook, account: idAccount }, { paths }) {
    if (await removeWebhook(paths, idAccount, idWebhook)) return { idWebhook, removed: true };
    throw noWebhook(idAccount, idWebhook);
  },
});

/** Prints the attempt; the exit code says whether it was delivered. */
function report(sent: SentMessage, { printResult }: DataContext): number {
  printResult(describeDelivery(sent));
  return sent.problem === undefined ? 0 : 1;
}

const undelivered = { 1: 'the receiver did not acknowledge the message' };

const test = defineDataCommand({
  name: 'test',
  summary: 'send a test message to a webhook now',
  arguments: { ID: id },
  options: { account },
  examples: [`webhook test ${example}`],
  exitCodes: undelivered,
  run: ({ ID: idWebhook, account: idAccount }, context) =>
    withWebhooks(context, async (webhooks) => {
      const sent = await webhooks.test(idAccount, idWebhook);
      if (sent === undefined) throw noWebhook(idAccount, idWebhook);
      return report(sent, context);
    }),
});

const deliveries = defineDataCommand({
  name: 'deliveries',
  summary: 'list the last messages of a webhook with their response codes',
  isList: true,
  arguments: { ID: id },
  options: { account },
  examples: [`webhook deliveries ${example}`],
  run: ({ ID: idWebhook, account: idAccount }, context) =>
    withWebhooks(context, async (webhooks) => {
      const sent = await webhooks.deliveries(idAccount, idWebhook);
      if (sent === undefined) throw noWebhook(idAccount, idWebhook);
      return sent.map(describeDelivery);
    }),
});

const resend = defineDataCommand({
  name: 'resend',
  summary: 'send one of the last messages of a webhook again now',
  arguments: { ID: id, MESSAGE: text("message id, see 'tributary webhook deliveries'") },
  options: { account },
  examples: ['webhook resend wh_3f2a90c1d84b7e65 wh_3f2a90c1d84b7e65.ex_5b1f7c3e9d2a4860 --account 1'],
  exitCodes: undelivered,
  run: ({ ID: idWebhook, MESSAGE: idMessage, account: idAccount }, context) =>
    withWebhooks(context, async (webhooks) => {
      const sent = await webhooks.resend(idAccount, idWebhook, idMessage);
      if (sent === undefined) throw noWebhook(idAccount, idWebhook);
      if (typeof sent !== 'string') return report(sent, context);
      const refusal = resendRefusals[sent];
      throw new AppError('not_found', `${refusal.charAt(0).toLowerCase()}${refusal.slice(1)}`, {
        hint: "Run 'tributary webhook deliveries' for the last messages.",
      });
    }),
});

const hours = parsed('hours for which the former secret also signs, 0 to 168 (24)', 'N', (value, what) => {
  const number = /^\d{1,3}$/.test(value) ? Number(value) : Number.NaN;
  return number <= rotationHours.most ? number : failUsage(`${what} must be from 0 to ${rotationHours.most}`);
});

const rotate = defineDataCommand({
  name: 'rotate-secret',
  summary: 'replace the secret of a webhook and print the new one, which is shown only once',
  arguments: { ID: id },
  options: { account, hours: withDefault(hours, rotationHours.fallback) },
  examples: [`webhook rotate-secret ${example}`],
  run: ({ ID: idWebhook, account: idAccount, hours: given }, context) =>
    withWebhooks(context, async (webhooks) => {
      const rotated = await webhooks.rotate(idAccount, idWebhook, given);
      if (rotated === undefined) throw noWebhook(idAccount, idWebhook);
      return { ...describeWebhook(rotated.webhook, context.clock.nowMs()), secret: rotated.secret };
    }),
});

export const webhookCommand: CommandGroup = {
  name: 'webhook',
  summary: 'create, list, test and remove webhooks for exports, schedules and catalogue notices',
  commands: [add, list, test, deliveries, resend, rotate, remove],
};
