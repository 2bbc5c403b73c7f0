import { mostWebhooks, parseWebhookUrl } from '../export/api/webhook-routes.ts';
import { AppError } from '../runtime/errors.ts';
import { createOutgoingRules } from '../runtime/http/outgoing-rules.ts';
import { addWebhook, listWebhooks, removeWebhook } from '../webhooks/webhook-store.ts';
import { verb, type Group, openData } from './command.ts';
import { positive, refuse, required, text } from './words.ts';
import { assertAccount } from '../access/users.ts';

const account = required(positive('whose exports are told of', 'ID'));

const add = verb({
  name: 'add',
  summary: 'add a webhook; answers the secret that messages are signed with, which is shown this once',
  words: { URL: text('a public address, or one that TRIBUTARY_WEBHOOKS_ALLOW allows') },
  options: { account },
  examples: ['webhook add https://hooks.example.com/exports --account 1'],
  async run({ URL: word, account: idAccount, data }, { environment, answer }) {
    const { config, paths, clock } = openData(data, { environment });
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
    answer({ idWebhook: webhook.idWebhook, idAccount, url: webhook.url, secret });
  },
});

const list = verb({
  name: 'list',
  summary: 'list the webhooks of an account',
  isList: true,
  options: { account },
  examples: ['webhook list --account 1'],
  async run({ account: idAccount, data }, { environment, answer }) {
    const { paths } = openData(data, { environment });
    const { known, damaged } = await listWebhooks(paths, idAccount);
    for (const { sealedSecret: _, ...webhook } of known) answer(webhook);
    for (const idWebhook of damaged) answer({ idWebhook, status: 'Damaged' });
  },
});

const remove = verb({
  name: 'remove',
  summary: 'remove a webhook',
  words: { ID: text("the webhook, as 'tributary webhook list' has it") },
  options: { account },
  examples: ['webhook remove wh_3f2a90c1d84b7e65 --account 1'],
  async run({ ID: idWebhook, account: idAccount, data }, { environment, answer }) {
    const { paths } = openData(data, { environment });
    if (!(await removeWebhook(paths, idAccount, idWebhook)))
      throw new AppError('not_found', `account ${idAccount} has no webhook ${idWebhook}`, {
        hint: "'tributary webhook list' names them.",
      });
    answer({ idWebhook, removed: true });
  },
});

/** `tributary webhook add|list|remove`: the addresses that an account has its ended exports told to. */
export const webhookCommand: Group = {
  name: 'webhook',
  summary: 'add, list and remove webhooks: addresses that are told of ended exports and of notices',
  verbs: [add, list, remove],
};
