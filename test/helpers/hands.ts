import type { Locator } from 'playwright-core';
import { tabTo } from './browser.ts';
import { waitFor } from './wait.ts';

/** How a person uses the controls of a page. */
export interface Hands {
  /** Presses a button, follows a link, opens a part, or changes a check box or a radio button. */
  press(control: Locator): Promise<void>;
  /** Chooses the entry of a list that starts with a title. */
  choose(list: Locator, title: string): Promise<void>;
  /** Replaces the text of a field. */
  type(field: Locator, text: string): Promise<void>;
}

/** Waits for the entry of a list that starts with a title, and returns its value: the title may get a count later. */
async function findEntry(list: Locator, title: string): Promise<string> {
  const options = list.locator('option');
  let found: string | undefined;
  await waitFor(`${title} can be chosen`, async () => {
    const entries = await options.evaluateAll((all) =>
      all.map((each) => [each.textContent, each.getAttribute('value')]),
    );
    const entry = entries.find(([text]) => text?.startsWith(title) === true);
    found = entry?.[1] ?? entry?.[0] ?? undefined;
    return entry !== undefined;
  });
  return found ?? '';
}

const mouse: Hands = {
  press: (control) => control.click(),
  async choose(list, title) {
    // The browser draws the open list itself; no event of the mouse reaches it.
    await list.selectOption({ value: await findEntry(list, title) });
  },
  async type(field, text) {
    await field.click({ clickCount: 3 });
    await field.pressSequentially(text);
  },
};

const radio = 'input[type=radio]';

/** Selects a radio button with the arrow keys: the tab key leads to the selected one of its group. */
async function selectRadio(control: Locator): Promise<void> {
  const page = control.page();
  const group = page.locator(`${radio}[name="${await control.getAttribute('name')}"]`);
  await tabTo(page, group.and(page.locator(':checked')));
  for (let turn = 0; turn < (await group.count()) && !(await control.isChecked()); turn += 1)
    await page.keyboard.press('ArrowRight');
}

const keyboard: Hands = {
  async press(control) {
    const page = control.page();
    await control.waitFor({ state: 'attached' });
    if (await control.evaluate((element, selector) => element.matches(selector), radio)) return selectRadio(control);
    await tabTo(page, control);
    await page.keyboard.press((await control.getAttribute('type')) === 'checkbox' ? 'Space' : 'Enter');
  },
  async choose(list, title) {
    const { keyboard: keys } = list.page();
    await findEntry(list, title);
    await tabTo(list.page(), list);
    // Otherwise each key would change the choice.
    await keys.press('Enter');
    await waitFor('the list is open', () => list.evaluate((element) => element.matches(':open')));
    await keys.type(title);
    await keys.press('Enter');
  },
  async type(field, text) {
    await field.waitFor();
    await tabTo(field.page(), field);
    await field.page().keyboard.press('Control+a');
    await field.page().keyboard.type(text);
  },
};

export const handsOf = { mouse, keyboard } as const;
