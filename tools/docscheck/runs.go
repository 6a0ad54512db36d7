package main

import "context"

// testRun says that a test runs, or compares with the program, the blocks of a page: of one
// section or all, of one language or all.
type testRun struct {
	page, section, language, test string
}

// testRuns are the blocks that tests run. A row without a test or without a block is a
// finding.
func testRuns() []testRun {
	return []testRun{
		{"README.md", "", "sh", "TestEveryCommandOfTheReadmeIsRun"},
		{"README.md", "", "json", "TestEveryCommandOfTheReadmeIsRun"},
		{"README.md", "Your own reward", "", "TestReadmeShowsAPythonRewardThatScores"},
		{"docs/write-a-scorer.md", "", "", "TestEveryBlockOfWriteAScorerRuns"},
		{"docs/compose.md", "", "yaml", "TestEveryConfigurationOfTheComposePageIsValid"},
		{"docs/scale-out.md", "One gateway", "sh", "TestTheMachinesOfTheScaleOutPageMeet"},
		{"docs/scale-out.md", "Several gateways", "sh", "TestTheMachinesOfTheScaleOutPageMeet"},
		{"docs/scale-out.md", "Rewards on different workers", "sh", "TestTheMachinesOfTheScaleOutPageMeet"},
		{"docs/scale-out.md", "", "yaml", "TestTheMachinesOfTheScaleOutPageMeet"},
		{"docs/scale-out.md", "", "conf", "TestTheNATSConfigurationsOfTheDocumentsAreRead"},
		{"docs/plan.md", "", "", "TestEveryExampleOfThePlanPageIsTrue"},
		{"docs/models.md", "Machines without a network", "sh", "TestTheWayToAMachineWithoutANetworkIsWalked"},
		{"docs/recipes/areal.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/diffusers.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/flow-factory.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/ms-swift.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/nemo-rl.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/openrlhf.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/roll.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/skyrl.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/slime.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/trl.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"docs/recipes/unirl.md", "", "sh", "TestEveryRecipeOfATrainerIsFollowed"},
		{"examples/mixed_text_visual/README.md", "", "", "TestTextPicturesAndAVideoAreScoredAsTheReadmeSays"},
		{"examples/nl2sql_verify/README.md", "", "sh", "TestQueriesAreRunAndScoredAsTheReadmeSays"},
		{"examples/pairwise_grpo/README.md", "", "text", "TestTheJudgePutsEachGroupInOrderAsTheReadmeShows"},
		{"rewards/verify/README.md", "", "python", "TestTheReadmesSQLToolWorks"},
	}
}

func (c *checker) runs(context.Context) error {
	counted := map[*block]bool{}
	for _, r := range testRuns() {
		p := c.tree.pages[r.page]
		if p == nil && len(c.tree.pages) < 10 {
			continue // Not this repository: a test's.
		}
		if c.tree.tests[r.test] == "" {
			c.wrong("tools/docscheck/runs.go", 1, "there is no test %s: who runs the blocks of %s now?", r.test, r.page)
		}
		found := false
		for i := range p.blocks {
			b := &p.blocks[i]
			if (r.section == "" || r.section == b.section) && (r.language == "" || r.language == b.language) {
				found = true
				counted[b] = true
			}
		}
		if !found {
			c.wrong("tools/docscheck/runs.go", 1, "%s has no such block as %s is said to run: section %q, language %q", r.page, r.test, r.section, r.language)
		}
	}
	c.count.run = len(counted)
	return nil
}
