import { maxWebhooks, parseWebhookUrl } from '../export/api/account-routes.ts';
import { AppError } from '../runtime/errors.ts';
import { createEgressPolicy } from '../runtime/http/egress-policy.ts';
import { addWebhook, listWebhooks, removeWebhook } from '../webhooks/webhook-store.ts';
import { defineDataCommand, type CommandGroup } from './command.ts';
import { positive, failUsage, required, text } from './option-specs.ts';
import { assertAccount } from '../access/users.ts';

const account = required(positive('account id', 'ID'));

const add = defineDataCommand({
  name: 'add',
  summary: 'create a webhook and print its signing secret, which is shown only once',
  arguments: { URL: text('public URL, or one that TRIBUTARY_WEBHOOKS_ALLOW allows') },
  options: { account },
  examples: ['webhook add https://hooks.example.com/exports --account 1'],
  async run({ URL: word, account: idAccount }, { config, paths, clock }) {
    await assertAccount(paths, idAccount);
    const rules = createEgressPolicy(config.webhooksAllow);
    if (typeof rules === 'string')
      throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW has the invalid entry '${rules}'`, {
        hint: 'Set networks such as 10.1.0.0/16 and host names such as hooks.example.com.',
      });
    const url = parseWebhookUrl(word, rules);
    if (typeof url === 'string') failUsage(`URL ${url}`);
    const nowMs = clock.nowMs();
    const { webhook, secret } = await addWebhook(paths, { idAccount, url: url.href }, { nowMs, most: maxWebhooks });
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
    const { known, damaged } = await listWebhooks(paths, idAccount);
    const listed: object[] = [];
    for (const { sealedSecret: _, ...webhook } of known) listed.push(webhook);
    return [...listed, ...damaged.map((idWebhook) => ({ idWebhook, status: 'Damaged' }))];
  },
});

const remove = defineDataCommand({
  name: 'remove',
  summary: 'remove a webhook',
  arguments: { ID: text("webhook id, see 'tributary webhook list'") },
  options: { account },
  examples: ['webhook remove wh_3f2a90c1d84b7e65 --account 1'],
  async run({ ID: idWebhook, account: idAccount }, { paths }) {
    if (await removeWebhook(paths, idAccount, idWebhook)) return { idWebhook, removed: true };
    throw new AppError('not_found', `account ${idAccount} has no webhook ${idWebhook}`, {
      hint: "Run 'tributary webhook list' for all webhooks.",
    });
  },
});

export const webhookCommand: CommandGroup = {
  name: 'webhook',
  summary: 'create, list and remove webhooks for ended exports and catalogue notices',
  commands: [add, list, remove],
};
