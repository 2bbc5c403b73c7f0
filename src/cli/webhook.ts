import { mostWebhooks, parseWebhookUrl } from '../export/api/account-routes.ts';
import { AppError } from '../runtime/errors.ts';
import { createOutgoingRules } from '../runtime/http/outgoing-rules.ts';
import { addWebhook, listWebhooks, removeWebhook } from '../webhooks/webhook-store.ts';
import { dataVerb, type Group } from './command.ts';
import { positive, refuse, required, text } from './words.ts';
import { assertAccount } from '../access/users.ts';

const account = required(positive('whose exports are told of', 'ID'));

const add = dataVerb({
  name: 'add',
  summary: 'add a webhook; answers the secret that messages are signed with, which is shown this once',
  words: { URL: text('a public address, or one that TRIBUTARY_WEBHOOKS_ALLOW allows') },
  options: { account },
  examples: ['webhook add https://hooks.example.com/exports --account 1'],
  async run({ URL: word, account: idAccount }, { config, paths, clock }) {
    await assertAccount(paths, idAccount);
    const rules = createOutgoingRules(config.webhooksAllow);
    if (typeof rules === 'string')
      throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW holds '${rules}'`, {
        hint: 'Name networks such as 10.1.0.0/16 and names such as hooks.example.com.',
      });
    const url = parseWebhookUrl(word, rules);
    if (typeof url === 'string') refuse(`URL ${url}`);
    const nowMs = clock.nowMs();
    const { webhook, secret } = await addWebhook(paths, { idAccount, url: url.href }, { nowMs, most: mostWebhooks });
    return { idWebhook: webhook.idWebhook, idAccount, url: webhook.url, secret };
  },
});

const list = dataVerb({
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

const remove = dataVerb({
  name: 'remove',
  summary: 'remove a webhook',
  words: { ID: text("the webhook, as 'tributary webhook list' has it") },
  options: { account },
  examples: ['webhook remove wh_3f2a90c1d84b7e65 --account 1'],
  async run({ ID: idWebhook, account: idAccount }, { paths }) {
    if (await removeWebhook(paths, idAccount, idWebhook)) return { idWebhook, removed: true };
    throw new AppError('not_found', `account ${idAccount} has no webhook ${idWebhook}`, {
      hint: "'tributary webhook list' names them.",
    });
  },
});

export const webhookCommand: Group = {
  name: 'webhook',
  summary: 'add, list and remove webhooks: addresses that are told of ended exports and of notices',
  verbs: [add, list, remove],
};
